"""What replicas printed: lines of many logs as one, read a little at a time however long they are."""

"""The files that runs leave: outputs, checksums, remote storage, previews."""

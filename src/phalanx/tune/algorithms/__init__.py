"""One module per algorithm, named as its section of the file. Each has `next_action(view)`: the next `Create` or
`Promote`, `Finish` when all is done, None to wait for running trials. `PACKAGES` names what it needs beside the
standard library; such modules import it when they make a suggestion."""

"""The tools of `phalanx mcp`: assistants read runs with the Model Context Protocol, and if allowed change them."""

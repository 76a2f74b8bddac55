"""`seismograd mcp`: recorded runs for language models, over the Model Context Protocol."""

"""Tools of other people's servers, by the Model Context Protocol."""

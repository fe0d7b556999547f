"""View models of the cockpit: what pages, terminals and MCP show, as JSON-ready values of bounded size."""

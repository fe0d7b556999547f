"""The name by which LangGraph's threads are known, apart from their workflow: every step's guard asks for it."""

WORKFLOW = "langgraph-checkpoints"

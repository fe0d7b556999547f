"""How a thread ends, in its archive tag and at a join: the words, and reasons that the engine gives."""

COMPLETED, FAILED, KILLED = "completed", "failed", "killed"
LEFT = "left"
"""The status of a branch that had not ended at its join."""
AT_JOIN = COMPLETED, FAILED, KILLED, LEFT
"""The statuses of a branch at its join."""
JOINED_WITHOUT = "joined without"
"""The reason for killing a branch or a call that had not ended when it was done without."""
PARENT_KILLED = "its parent was killed"
MAX_ROUNDS = "maxRounds"
"""The beginning of the reason why a code workflow ended without a result."""

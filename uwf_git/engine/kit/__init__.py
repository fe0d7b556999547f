"""From a role to a step: the prompt, the conversation with an agent, and the output in its answer."""

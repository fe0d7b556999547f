"""One step of one thread: prompt, agent, output, acceptance, budget, conversation."""

"""The Agent Client Protocol, from the client's side.

frames       lines of JSON from a pipe, bounded, with what is no frame told apart
conversation session updates become turns
permissions  who says yes to what an agent asks leave for
asking       the person at the terminal
files        the files that an agent reads and writes through its client
complaints   what went wrong, in one line
restraint    how an agent is kept from what the policy forbids
choices      the modes and models that a session offers
pipes        the agent's pipes in an event loop
session      all of it; the only module that knows the SDK
"""

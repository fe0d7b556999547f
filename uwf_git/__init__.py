"""A stateless workflow engine for LLM agents whose store is a git repository.

Rooms, each importing only from itself and those above it. Beside them stand `errors`, `text`, `markdown`, `log`,
`timelimit` and `attention`, which need none of them.

    processes  child processes: started, bounded, ended
    values     what is hashed and written; no git, no network
    documents  what people write, read with the place of every part
    workflow   the language, and who is next; pure
    git        a repository, and the git program
    config     config.yaml, .env, what tools may do
    store      nodes and threads in git
    crews      personas, their menus and workflows
    verify     is it what it says it is?
    kit        what makes a command an agent
    cost       what threads have used, and what they may use
    engine     one step of one thread
    agents     the agents that ship
    bundles    workflows that are code: their contract, the harness, what they are trusted by
    sharing    two stores
    migration  the stores of earlier programs
    fleet      many threads, many workers
    evaluation suites of cases, their runs, and what judges say of them

Importing this package imports none of them: start-up is what a user feels.
"""

__version__ = "0.2.0"

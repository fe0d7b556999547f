"""The `uwf` command, thin over the library.

    main        the process: version, signals, errors, exit status
    command     what every command shares: options before and after its name, help, lazy loading
    tree        the commands and where each is
    commands/   a module for each group of commands
    mcp/        serves commands as tools of the Model Context Protocol
    invocation  one call: its options, its location, its output
    resolve     what an argument means: a text, a workflow, a thread, a step
    completers  what the tab key offers
    exchange    the git program, and what a plain `git fetch` brought
    exchanged   what a push or a pull came to, in words
    meter       how far something is, on one line of a terminal
    output      JSON, YAML and text
    terminal    what may reach a terminal, and how it looks there
    transcript  threads to read
    plot        bar charts

Nothing is imported before it is needed: start-up is what a user feels.
"""

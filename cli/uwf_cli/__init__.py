"""The `uwf` command, thin over the library.

    main        the process: signals, errors, exit status
    command     shared options, help, lazy loading
    tree        the commands and where each is
    commands/   a module for each group of commands
    call        commands called in process by servers
    invocation  one call: its options, its location, its output
    resolve     arguments: texts, files, workflows
    selection   arguments and filters that select threads
    completers  shell completion
    exchange    git with a progress meter; `exchange_output` has the results of push and pull as text
    output      JSON, YAML and text
    terminal    escaping, styles, tables
    watching/   live lines, threads in parallel, events
    page/       HTML without scripts
    plot        charts

Modules are imported when needed, for a fast start.
"""

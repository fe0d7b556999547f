"""The `uwf` command, thin over the library.

    main        the process: version, signals, errors, exit status
    command     what every command shares: options before and after its name, help, lazy loading
    tree        the commands and where each is
    invocation  one call: its options, its location, its output
    output      JSON, YAML and text
    terminal    what may reach a terminal, and how it looks there

Everything else holds commands. Nothing is imported before it is needed: start-up is what a user feels.
"""

"""The command ``resource-objects``: a thin layer over the ledger.

=====================  ============================================================================
``main``               the program: the table of commands, errors in one line, exit status
``base``               the declaration of commands, their ledger and their output
``request_arguments``  the request and the options of its search as arguments
``render``             trees with bars, as text: pure
``host_lines``         the usage of each host as a line of text: pure
``fitting``            tables and drawings as wide as the terminal is
``drawing``            NUMA cells as a drawing and as rows
``device_table``       PCI devices as a table
``progress``           the progress bar of commands that take long
``completion``         shell completion
``tour``               the tour on this machine
``environment``        the variables that tell a job its part of a host
``host``               the commands themselves, by subject; so are ``candidates``,
                       ``capacity`` (how many, how much, when), ``consumer``, ``explain``,
                       ``hosts``, ``job``, ``ledger``, ``names``, ``provider``, ``schedule``,
                       ``serve``, ``server_groups``, ``service``, ``simulate``, ``site``,
                       ``statistic``, ``use_over_time`` and ``what_if``
=====================  ============================================================================

A module of commands is imported for its help too, so modules that take long to import are imported
when a command runs.
"""

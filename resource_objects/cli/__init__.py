"""The command ``resource-objects``: a thin layer over the ledger.

=====================  ============================================================================
``main``               the program: which commands there are, errors in one line, exit status
``base``               what the commands share, and which ledger they open
``request_arguments``  what is asked and how it is searched, in the words of a command line
``render``             trees with bars, as text: pure
``host_lines``         who has what, a line for each host, as text: pure
``fitting``            tables and drawings as wide as the terminal is
``drawing``            NUMA cells as a drawing and as rows
``device_table``       PCI devices as a table; ``device_columns``: their columns
``completion``         what a shell completes
``tour``               the tour on this machine
``environment``        the variables that tell a job its part of a host
``host``               the commands themselves, by what they are about; so are ``candidates``,
                       ``capacity`` (how many, how much, when), ``consumer``, ``explain``,
                       ``hosts``, ``job``, ``ledger``, ``names``, ``provider``, ``schedule``,
                       ``serve``, ``server_groups``, ``service``, ``simulate``, ``site``,
                       ``statistic``, ``use_over_time`` and ``what_if``
=====================  ============================================================================

A module of commands is imported for its help too: what takes long to import is imported when a
command runs.
"""

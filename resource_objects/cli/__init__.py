"""The command ``resource-objects``: a thin layer over the ledger.

==================  ===============================================================================
``main``            the program: arguments, errors in one line, exit status
``commands``        which commands there are, and how they are found
``base``            what the commands share
``database``        which ledger a command opens
``render``          trees with bars, as text: pure
``place``           search and claim, anywhere or at one provider
``asking``          what is asked, in words of the command line; ``searching``: how
``story``           how much the tour takes, and of what: pure
``host`` ...        the commands themselves
==================  ===============================================================================
"""

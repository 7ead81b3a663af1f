"""Other systems' words and formats, one package for each: ``nova``.

What is read here becomes a value of the library, or is refused; nothing above knows where it came
from. What another system gets wrong is listed beside what reads it.
"""

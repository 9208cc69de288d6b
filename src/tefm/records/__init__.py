"""Stage 0: a table becomes slots.

A table of the user is read (`read`), described by a `Schema` (`schema`, `infer`), turned into small
integers (`vectorise`) that can be turned back, and put in order (`sequences`).
"""

"""Stage 0: a table becomes slots.

A user's table is read (`readers`), described by a `Schema` (`schema`, `infer`), turned into small integers and back
(`vectorise`), grouped into sequences (`grouping`) and split (`splitting`).
"""

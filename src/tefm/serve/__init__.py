"""Serving models over HTTP: `tefm serve`. One thread owns the models, and requests of all clients share its batches.

rows.py      the records of a request, as text
served.py    a model that answers the records of several requests at once
worker.py    the thread, its queue and its batches
messages.py  what requests and replies look like, errors too
describe.py  what clients are told of a model, with example rows
service.py   reading a request, and waiting for its answer
routes.py    the routes, also those that other servers' clients know
limits.py    what a server accepts, and what it counts
protect.py   keys, limits, headers, the access log
server.py    the process: models in, signals, exit
page/        the page at /
"""

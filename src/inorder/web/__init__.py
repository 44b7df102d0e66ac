"""`inorder web`: pages and an HTTP API for operators. A front end: it renders what the services under it return.

`access.py` decides who may do what, `backend.py` is all that pages and API ask for, `api.py` has the routes of the API
and their OpenAPI document, `pages.py` the pages, `site.py` puts them together, and `server.py` serves them. Pages are
rendered here and work without scripts; htmx replaces the part of a page that changes.
"""

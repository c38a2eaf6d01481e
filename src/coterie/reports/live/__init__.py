"""Live reports of runs: `coterie watch`. Everything is read from records; runs need no change to be watched.

    tail.py        the lines of a file that grows, is cut back or is replaced
    following.py   `Follower`: how far a run is; `Directory`: the runs below a folder
    feeds.py       what is sent to browsers, as JSON, and how often
    channel.py     one feed, many browsers
    app.py         the pages and streams over HTTP; who may see them
    server.py      the server on this machine, from its start to its end
    __main__.py    the server of `coterie run --watch`, in a process of its own

Starlette and uvicorn, the extra `watch`, are imported in `app` and `server` only.
"""

"""A worker that dies at its second job."""

import os


def work(connection, places, until, threads):
    from tuplet.experiments.outcomes import Outcome

    connection.send(Outcome(connection.recv(), True, {}))
    connection.recv()
    os._exit(3)

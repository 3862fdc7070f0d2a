"""Workers that do not go on for long: one dies at its second job, one fails at every job after its first."""

import os


def work(connection, places, until, threads):
    from tuplet.experiments.outcomes import Outcome

    connection.send(Outcome(connection.recv(), True, {}))
    connection.recv()
    os._exit(3)


def broken(connection, places, until, threads):
    from tuplet.experiments.outcomes import Outcome
    from tuplet.experiments.run import Failure

    first = connection.recv()
    connection.send(Failure(first, f"broken in {os.getpid()}") if first.seed == 0 else Outcome(first, True, {}))
    try:
        while True:
            connection.send(Failure(connection.recv(), "still broken"))
    except EOFError:
        return

"""Several processes on one port. Nothing else in the service knows that there are others.

`supervisor` starts them with uvicorn's own supervisor. `relay` is a layer around each worker's
application: where one worker's answer would not do, it asks the others for theirs and combines
them. `metrics` adds up what the workers counted.
"""

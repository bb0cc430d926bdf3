"""Several processes on one port. Nothing else in the service knows that there are others.

supervisor  starts them, by uvicorn's own supervisor
relay       a layer around an application that answers for all of them where one would not do
workers     how workers on one port reach one another
metrics     adds up what the workers counted
"""

"""A request router for Ray Serve: the replica with the most accuracy in time for THIS budget."""

from __future__ import annotations

import random

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from deploy.ray_serve import proxy
from service.fleet.headroom import parse
from service.fleet.routing import View, by_headroom


class HeadroomRouter(RequestRouter):
    """Chooses by headroom instead of by queue length (`service.fleet.routing.by_headroom`).

    Headroom comes with every answer (ORCA's header, which the proxy reads); for a replica that has
    not answered lately, with Ray's own routing statistics.

    Ray copies this module into the proxy, with all that it names but modules. So what the proxy
    knows is read from its module: `from proxy import REPLICAS` would make a second one.
    """

    def initialize_state(self) -> None:
        """Called once by Ray."""
        self._chance = random.Random()
        self._choose = by_headroom(self._chance)
        self._sent: dict[str, str] = {}
        """Ray's id of a request -> the replica it went to."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The best replica first, then the others in case it takes no more."""
        if not candidate_replicas:
            return []
        now = proxy.now_ms()
        views = [self._view(replica, now) for replica in candidate_replicas]
        due = proxy.REQUESTS.get(pending_request.metadata.request_id) if pending_request else None
        if due is None:  # nothing to classify: any replica
            best = self._chance.randrange(len(views))
        else:
            best = self._choose(views, due - now, now)
        if pending_request is not None:
            self._forget(pending_request.metadata.internal_request_id)
            views[best].sent(now)
            name = candidate_replicas[best].replica_id.unique_id
            self._sent[pending_request.metadata.internal_request_id] = name
        others = [r for i, r in enumerate(candidate_replicas) if i != best]
        return [[candidate_replicas[best]], others]

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:  # noqa: ARG002
        """Called by Ray however the request ended."""
        self._forget(internal_request_id)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Called by Ray."""
        super().on_replica_actor_died(replica_id)
        proxy.REPLICAS.pop(replica_id.unique_id, None)

    def _view(self, replica: RunningReplica, now: float) -> View:
        view = proxy.REPLICAS[replica.replica_id.unique_id]
        if view.headroom is None:
            told = replica.routing_stats.get("headroom")
            headroom = parse(told.encode()) if isinstance(told, str) else None
            if headroom is not None:
                view.report(headroom, now)
        return view

    def _forget(self, internal_request_id: str) -> None:
        name = self._sent.pop(internal_request_id, None)
        if name is not None:
            proxy.REPLICAS[name].left(proxy.now_ms())

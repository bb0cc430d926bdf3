"""The same service on many machines, as a Ray Serve application.

    pip install 'san-serve' 'ray[serve]'
    export RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=deploy.ray_serve.proxy:middlewares
    serve run deploy.ray_serve.application:build        # settings from SAN_* in this shell
    serve deploy deploy/ray_serve/serve.yaml            # settings from the file

The variable must be set where `ray start` runs, on every node: it is Ray's proxies that read it.

application     a replica: the whole service, its health, its statistics
proxy           in Ray's proxy: stamps the first byte, reads headroom, makes errors problem+json
router          sends a request to the replica that serves it best in time
autoscaling     how many replicas there should be
peers           how replicas reach one another: reloads, feedback
replica_metrics what a replica tells Ray's own metrics
"""

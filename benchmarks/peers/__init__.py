"""Other federated-learning frameworks on the workloads of ``fedbr bench``: python -m
benchmarks.peers.
"""

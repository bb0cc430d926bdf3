"""Scale Adaptive Networks: one meta network, a main network for any input resolution.

The paper: Li, Yao, Chen, "Learning to Learn Parameterized Classification Networks for Scalable
Input Images", ECCV 2020.
"""

"""pagelab.machine"""

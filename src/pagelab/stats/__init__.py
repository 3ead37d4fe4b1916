"""pagelab.stats"""

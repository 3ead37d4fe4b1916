"""pagelab.study"""

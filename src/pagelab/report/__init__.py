"""pagelab.report"""

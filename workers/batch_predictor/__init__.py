"""The job of a batch prediction: reads a table, predicts it as a replica would, writes a version.

`python -m workers.batch_predictor`, started by the command `slipway-batch-predict`. It runs in the
environment of the model, and its API is that of the job's token.
"""

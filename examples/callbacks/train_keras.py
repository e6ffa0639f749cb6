import keras
import numpy as np

from phalanx.tracking.callbacks import PhalanxKeras

points = np.random.default_rng(0).normal(size=(256, 2)).astype("float32")
sums = points.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
callback = PhalanxKeras(every_batches=4, log_model=True)
model.fit(points, sums, epochs=3, validation_split=0.25, callbacks=[callback], verbose=0)
model.evaluate(points, sums, callbacks=[callback], verbose=0)

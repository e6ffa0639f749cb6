import faults

faults.at_start()
import tensorflow as tf

faults.at_arrival()
strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def add():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones(8)))


for step in range(faults.STEPS):
    faults.at_step(step)
    add()

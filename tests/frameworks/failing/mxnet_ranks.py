import faults

faults.at_start()
import mxnet as mx

faults.at_arrival()
store = mx.kv.create("dist_sync")
store.init("ones", mx.nd.ones(8))
for step in range(faults.STEPS):
    faults.at_step(step)
    store.push("ones", mx.nd.ones(8))
    pulled = mx.nd.zeros(8)
    store.pull("ones", out=pulled)
    pulled.wait_to_read()

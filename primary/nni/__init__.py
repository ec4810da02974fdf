"""NNI's experiment manager in front of a run; see docs/nni.md.

aiperf run --manager nni           `experiment`: starts an experiment, waits for its end
  | NNI's manager (Node.js)
the tuner (`tuner`)                asks for jobs when NNI wants another trial, hands them out
  | standard input and output, one JSON message a line (`messages`)
python -m primary.nni     the primary of the run, as without NNI (`manager` is its manager)

NNI's trials (`trial`)             follow a job each in the history list, and report its epochs
"""

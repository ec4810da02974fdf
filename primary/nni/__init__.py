"""Runs under NNI's experiment manager; see docs/nni.md.

aiperf run --manager nni           `experiment`: starts an experiment and waits for its end
  | NNI's manager (Node.js)
the tuner (`tuner`)                requests jobs when NNI wants another trial, hands them out
  | standard input and output, one JSON message a line (`messages`)
python -m primary.nni              the primary of the run, as without NNI, with `manager`

NNI's trials (`trial`)             each follow one job in the history list and report its epochs
"""

"""The integrity of a run's records: every place that is not as an honest run leaves it.

Everything that reads a run sees these damages (`RunData.damages`), all at once.

| module        | finds                                                                    |
|---------------|--------------------------------------------------------------------------|
| lines         | broken links, numbers other than 0, 1, 2, ..., clocks that step          |
| files         | missing and foreign files, chains that stop, records that a plan invents |
| traces        | trials that overlap, records outside of a trial                          |
| jobs          | starts without a job, jobs off the schedule                              |
| facts         | another trainer, data set, source, or space than the run's               |
| bounds        | images, epochs and learning rates that cannot be; ends off the plan      |
| evidence      | rows of steps that are missing or are not those of their epoch           |
| hybrid        | exchanges of groups with parameter servers that contradict epochs        |
| clocks        | releases, ends, resumptions and arrivals that do not fit together        |
| witness       | files that are not as the primary heard of them                          |
| science       | the same of scientific workloads: jobs, epochs, ends, one target and data |
| architectures | networks that their morphs do not make, or beyond the limits             |

Records of version 1 have no chain: only lines (without clocks) and missing files are looked at, and
the rule `chain` is not met. The same holds for a run with files of both versions, which an earlier
version began and this one resumed.
"""

// Package daily compares a ledger day by day: our side from the store, the other side from where the provider puts it,
// the reports into a directory.
//
// A [Job] is one ledger. [Job.Compare] compares one day of it, for a command. A [Scheduler] compares each day once it is
// over, in a gateway. Any number of nodes may have the same schedule: the day is the key of an operation of the engine,
// in a system scope of the store. The node that reserves it compares; if that node dies, its lease ends and another one
// compares anew; when it is done, the answer under the key is the day's [Result], which every node shows as metrics.
// Reports are replaced whole under the same name, so a day that is compared twice has one report.
package daily

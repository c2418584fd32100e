// Package adminwire is the JSON of the admin API: what package console writes, and what the
// command reads with --admin. docs/openapi/admin.yaml specifies it.
//
// Revisions, ids of messages and counts are JSON numbers. A revision starts at the store's
// clock in microseconds, so until the year 2255 it is below 2^53, and a program that reads
// numbers as floating point gets it exactly. Scopes and keys are arbitrary bytes: where one
// is not UTF-8, its bytes are beside it in base64.
package adminwire

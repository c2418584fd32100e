package sealed_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/retrysafe/retrysafe"
	"github.com/retrysafe/retrysafe/store/storekit"
)

// stored is a record of the first layout, as the store below keeps it under key 1.
const stored = "AQED//8BKCvLw/CjSopKxvAMJ2/PZs83V6MzLoPZIgjlB5r0aSJvAAAAAAAAAAAAAAAAAAABK0JJRzJHcU5lZmdvNk5VU3NZaFRkYk14OVJWeGdZSVFuNmc0" +
	"V0JiZm55ZlErT0YzNWlPR3NUT3pMS25HdDBHSmt3Z2lnSWZLeEpTTDFqVVhlMEpzNjJ5aw5QT1NUIC9wYXltZW50cwRjaF8xSEFRQUFBQUU2akVJNzFsUFc3" +
	"X0VDU3hsM2tuM0JVXy0wbk0zVS1GbnRQNGhScVg0a2p1Yy15UnI5WGJUcU1KQk1GSGtZZ0RsMQdjaGFyZ2VkATMBAAAAAYYENcHY6b0OisYMbE2JzscopLOm" +
	"CuDHQcmaLNsWzVpfNujiry7M2uTZ6Gi1j5sBNwEAAAABw9mm31ArouuH8Zxna8gRGTMj9tR3aTmTp4kw5OblpqmQB1+4e7xayZfuyiysF9ykVJgBOwEAAAAB" +
	"PHg8wVmJD93CsAbmxb4epIdGsF0Yy9zYXKwFMKCUWPBV4lxGJJw275KAg1YUILhgN1B9pdEooQEJAQAAAJoBQVFBQUFBRzNhQk5adU9ZcURxQzJhRHBGdHZn" +
	"NHFQNGR4b1lQdnZKWjhNTU05cjlUTVVoUUZnT1U5WG1tbG9JVjZYd0VFN1ZJdFJCVEJwZkpJaWdHeno4c0xsbmllaDhtaGpNNTRpYmg1c1JsdmZKWDJITHVt" +
	"cGhuWWpZRlg5Zk05R1RNZzNKTG1LVzA5c1VUdzdzTVFIbEFodwKAgPiUkqUn0Juhr5+isAbQq76YuqKwBtCboa+forAG0Juhr5+isAYBkgMAAHUBAAAAAVr+" +
	"rJ8Y+E8/kLO00/qbnnIlh9ipiUrCLnWhw5CMrU+scBy7qJw4jnNQG3apMjLcNz9O7lPULZn/6OYNRNcDPdXiMdFGEWICuoDZFKq2k9dq6htk8+roLMxFt6+k" +
	"apznk8D/HbmkzleC3moZMwr3TsZUNcmi"

// What was sealed by an earlier version opens: the way from secrets to ciphers and hashes
// is part of the stored format.
func TestRecordOfAnEarlierVersionOpens(t *testing.T) {
	t.Parallel()
	b, err := base64.StdEncoding.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := storekit.DecodeRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	s, below := pair(t)
	create(t, below, retrysafe.Write{Record: rec, Term: time.Hour})
	same(t, load(t, s, retrysafe.Ref{Scope: "tenant-a", Key: "order-1"}), full("tenant-a", "order-1").Record)
}

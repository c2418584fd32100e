/*
 * The protocol of one idempotency key, for Spin.
 *
 * Requests under the key come in at any time. One of them reserves it, does the
 * work, and stores the answer; the others are answered from the record, or claim
 * it. A lease may run out at any instant, a request or a reply may be lost, a
 * process may stop for good or for a while between any two steps, and a call may
 * reach the provider long after its caller has given it up.
 *
 * How to read it:
 *
 *   - Each d_step is one step of the store, of the provider or of a client, and
 *     happens whole or not at all. It begins with what must hold for it, and says in
 *     one sentence what it does: a trail reads as a story.
 *   - A crash needs no step. A process that takes no more steps has crashed, and one
 *     that takes none for a while has paused; the search has every such run.
 *   - A refused request changes nothing. It is as if it had not been sent, so it is
 *     left out: it may come again.
 *   - Revisions never repeat. So all that one can tell is whether the record was
 *     written since it was read, and that bit is kept instead of the number. Hence
 *     heartbeats, sweeps and questions are not counted: there may be any number.
 *   - What becomes of a lapsed attempt is chosen when it is swept, from all that is
 *     legal for its effects. So one search has every policy, and every mixture.
 *
 * The effects are chosen by one of INTX, KEYED and UNPROTECTED. What else may be
 * defined changes one thing about the protocol, and is explained where it does;
 * PLAIN leaves out what the protocols that others have written down do not have.
 */

#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif

/* WATCH is the number of the one invariant to watch; 0 watches all of them. */
#ifndef WATCH
#define WATCH 0
#endif

#define breaks(n, what) \
	if \
	:: WATCH == 0 || WATCH == n -> printf(what); assert(false) \
	:: else \
	fi

/* ---- The record ---- */

mtype = { Absent, InProgress, Completed, Retryable, Unknown };

mtype state = Absent;
byte owner;       /* the request that holds it, or held it last */
byte answer;      /* the maker of the answer, once it is Completed */
byte lock;        /* 1 + the request whose transaction has the key; 0: none */
bool started;     /* STARTED: its owner has announced the call */
bool due;         /* LEASE_CHECK: a reader has seen that its lease is over */

/* The number itself is for the sentences only, which are said before the write. */
hidden int revision;
#define next (revision + 1)

/* The makers of answers that are no attempt's, and the readers that are none. */
#define Lapsed     ATTEMPTS
#define Found      (ATTEMPTS + 1)
#define Sweeper    ATTEMPTS
#define Reconciler (ATTEMPTS + 1)
#define NoReader   (ATTEMPTS + 2)

#define bit(i) (1 << (i))

#ifndef FENCE_REPEATS
/* The readers whose copy of the record is current. After a write only the writer's is. */
byte current;
#define fresh(i)    (current & bit(i)) /* what is stored has the revision that i has read */
#define reads(i)    current = current | bit(i)
#define forgets(i)  current = current & ~bit(i)
#define wrote(i)    current = bit(i) & (bit(NoReader) - 1); revision++
#define created(i)  wrote(i)
#define deleted     current = 0
#define first       next
#define fenced(i)   (owner == i)
#define bounded     true
#else
/* FENCE_REPEATS: a new record begins at revision 1 again, and owners are not
 * compared. Here the numbers count, so the search ends at revision 8. */
byte stored, seen[ATTEMPTS + 3];
#define fresh(i)    (seen[i] == stored)
#define reads(i)    seen[i] = stored
#define forgets(i)  seen[i] = 0
#define wrote(i)    stored++; seen[i] = stored; revision = stored
#define created(i)  stored = 1; seen[i] = 1; revision = 1
#define deleted     stored = 0; revision = 0
#define first       1
#define fenced(i)   fresh(i)
#define bounded     (stored < 8)
#endif

/* ---- The requests ---- */

mtype = { Idle, Claims, Orphan, Taken, Runs, Announced, Checked, Waits, Works, Holds, Commits, Doubts, Undone, Acks, Done };

mtype at[ATTEMPTS] = Idle;
byte flying;      /* whose call is under way to the provider */
bool aside;       /* the owner ran too long, and was set aside */
byte tombs;       /* TOMBSTONE: whose call the provider refuses from now on */
byte effects;     /* what all this is about */
bool known;       /* the provider remembers the key */
byte acked;       /* 1 + the maker of the answer that a client got; 0: none did */

#define name(i) (65 + i)

/* Requests that have not come yet are alike, so it is no loss if they come in order;
 * and once the provider knows the key, it is none if calls arrive at once. UNREDUCED
 * does without both, to see that it makes no difference. */
#ifdef UNREDUCED
#define begins(i) (at[i] == Idle)
#define arrive_all skip
#define arrived    false
#else
#define begins(i) (at[i] == Idle && (i == 0 || at[(i == 0 -> 0 : i - 1)] != Idle))
#define arrive_all flying = 0
#define arrived    known
#endif

/* No transaction holds the key; none holds the row. A transaction that works has
 * taken the key, and writes the row only when it ends. */
#define key_free (lock == 0 && bounded)
#define row_free ((lock == 0 || at[lock - 1] == Works) && bounded)

/* An owner that meets its own attempt, at whatever revision, adopts it. */
#define holds(i) (owner == i && (state == InProgress || state == Unknown))

#ifdef UNFENCED /* an owner writes its end whatever is stored */
#define settles(i) true
#else
#ifdef FENCE_REPEATS
#define settles(i) fresh(i)
#else
#define settles(i) (holds(i) || owner == i && fresh(i) && state == Retryable)
#endif
#endif

/* What may become of a lapsed attempt, beside being given up as failed. */
#ifdef UNPROTECTED
#ifdef STARTED
#define may_rerun (!started)
#define may_quarantine started
#else
#ifdef RERUN /* as if the effects could bear it */
#define may_rerun true
#define may_quarantine false
#else
#define may_rerun false
#define may_quarantine true
#endif
#endif
#else
#define may_rerun true
#define may_quarantine true
#endif

/* What a failed call proves. */
#ifdef UNPROTECTED
#ifdef RELEASE_ON_TIMEOUT /* no reply is taken for no effect */
#define proven Retryable
#else
#define proven Unknown
#endif
#else
#define proven Retryable
#endif

/* ---- What holds ---- */

/* Each write to the record goes through here. */
inline put(s) {
	if
	:: state == Completed && acked != 0 -> breaks(4, "S4 is broken: an answer that a client got is overwritten\n")
	:: else
	fi;
	if
	:: state == Completed -> breaks(5, "S5 is broken: a final record is written\n")
	:: else
	fi;
#ifdef UNPROTECTED
	if
	:: s == Retryable && effects > 0 -> breaks(9, "S9 is broken: what has happened is taken not to have\n")
	:: else
	fi;
#endif
	due = false;
	state = s
}

/* An attempt writes in its own name. */
inline ends(i, s) {
	if
	:: owner != i || state == Absent -> breaks(5, "S5 is broken: a record is written by a request that does not own it\n")
	:: else
	fi;
	put(s);
	wrote(i)
}

inline happens() {
	effects++;
	if
	:: effects > 1 -> breaks(1, "S1 is broken: the effect happened twice\n")
	:: else
	fi;
#ifdef UNPROTECTED
	if
	:: state == Retryable -> breaks(9, "S9 is broken: what is taken not to have happened happens\n")
	:: else
	fi
#endif
}

/* A client gets an answer. */
inline tells(a) {
	if
	:: acked != 0 && acked != a + 1 -> breaks(2, "S2 is broken: two different answers\n")
	:: else
	fi;
	if
	:: state != Completed || answer != a -> breaks(3, "S3 is broken: an answer that is not stored\n")
	:: else
	fi;
	acked = a + 1
}

/* The request is over. What it knew is forgotten, so that such states are one. */
inline leaves(i) {
	at[i] = Done;
	aside = aside && owner != i;
	forgets(i)
}

inline takes(i) {
	if
	:: state == Unknown && at[owner] != Taken && at[owner] != Orphan -> breaks(9, "S9 is broken: an unknown outcome is claimed\n")
	:: else
	fi;
	if
	:: at[owner] == Taken || at[owner] == Orphan -> at[owner] = Done
	:: else
	fi;
	put(InProgress);
	owner = i;
	aside = false;
	started = false;
	wrote(i)
}

/* ---- A request, and the attempt that it may become ---- */

active [ATTEMPTS] proctype request() {
end:	do

	/* Reserve. The reply may be lost: then nothing runs. */
	:: d_step { begins(_pid) && state == Absent && key_free ->
		printf("%c reserves the key, revision %d\n", name(_pid), first);
		state = InProgress; owner = _pid; aside = false; created(_pid); at[_pid] = Runs
	}
	:: d_step { begins(_pid) && state == Absent && key_free ->
		printf("%c reserves the key, revision %d, and never hears of it\n", name(_pid), first);
		state = InProgress; owner = _pid; aside = false; created(_pid); at[_pid] = Orphan; forgets(_pid)
	}
#ifdef FAIL_OPEN /* a request runs although the store does not answer */
	:: d_step { begins(_pid) ->
		at[_pid] = Runs;
		printf("%c gets no reply from the store and runs all the same\n", name(_pid))
	}
#endif

	/* A final record answers. */
	:: d_step { begins(_pid) && state == Completed ->
		printf("%c asks again and gets the stored answer\n", name(_pid));
#ifdef GOAL /* to see that the search gets as far as it should: whose answer is looked for */
		if
		:: answer == GOAL -> printf("The goal is reached: a retry gets the answer of a recovery\n"); assert(false)
		:: else
		fi;
#endif
		tells(answer)
	}

	/* What may run again is claimed: read, then swapped. */
	:: d_step { begins(_pid) && state == Retryable ->
		reads(_pid); at[_pid] = Claims;
		printf("%c finds that it may run again\n", name(_pid))
	}
#ifndef NO_TAKEOVER
	:: d_step { begins(_pid) && state == InProgress && may_rerun ->
		reads(_pid); at[_pid] = Claims;
#ifdef LEASE_CHECK
		due = true;
#endif
		printf("%c finds that the lease of %c has run out\n", name(_pid), name(owner))
	}
#endif
	/* So is what this process has reserved and provably never started. */
	:: d_step { begins(_pid) && (state == InProgress || state == Unknown) && at[owner] == Orphan ->
		reads(_pid); at[owner] = Taken; at[_pid] = Claims;
		printf("%c finds that %c was never started\n", name(_pid), name(owner))
	}
	:: d_step { at[_pid] == Claims && fresh(_pid) && row_free ->
		printf("%c claims the key, revision %d\n", name(_pid), next);
		takes(_pid); at[_pid] = Runs
	}
	:: d_step { at[_pid] == Claims && fresh(_pid) && row_free ->
		printf("%c claims the key, revision %d, and never hears of it\n", name(_pid), next);
		takes(_pid); at[_pid] = Orphan; forgets(_pid)
	}
	:: d_step { at[_pid] == Claims && !fresh(_pid) ->
		at[_pid] = Idle;
		if
		:: at[owner] == Taken -> at[owner] = Orphan
		:: else
		fi;
		printf("%c comes too late with its claim\n", name(_pid))
	}

	/* While it runs a heartbeat renews the lease. */
	:: d_step { (at[_pid] == Runs || at[_pid] == Waits) && !aside && holds(_pid) && row_free ->
		printf("%c renews its lease, revision %d\n", name(_pid), next);
		ends(_pid, InProgress)
	}
#ifndef PLAIN
	/* It may run too long. Then it is set aside, and may still come to an answer. */
	:: d_step { (at[_pid] == Runs || at[_pid] == Waits) && !aside && holds(_pid) && row_free ->
		printf("%c runs too long and is set aside as %e, revision %d\n", name(_pid), proven, next);
		ends(_pid, proven); aside = true
	}
	/* It may say that it has done nothing. */
	:: d_step { (at[_pid] == Runs || at[_pid] == Announced) && row_free ->
		if
		:: settles(_pid) -> printf("%c says that it has done nothing, revision %d\n", name(_pid), next); ends(_pid, Retryable)
		:: else -> printf("%c has lost the key\n", name(_pid))
		fi;
		leaves(_pid)
	}
	/* Or have an answer without an effect, such as a refusal. */
	:: d_step { at[_pid] == Runs && row_free && settles(_pid) ->
		printf("%c stores a refusal, revision %d\n", name(_pid), next);
		ends(_pid, Completed); answer = _pid; at[_pid] = Acks
	}
#endif

#ifndef INTX
	/* The effect is a call. */
#ifdef STARTED /* which is announced in the record first */
	:: d_step { at[_pid] == Runs && row_free ->
		if
		:: owner == _pid && state == InProgress ->
			printf("%c announces its call, revision %d\n", name(_pid), next);
			ends(_pid, InProgress); started = true; at[_pid] = Announced
		:: else -> leaves(_pid); printf("%c has lost the key\n", name(_pid))
		fi
	}
	:: d_step { at[_pid] == Announced ->
#else
#ifdef LEASE_CHECK /* just before it the record is looked at once more */
	:: d_step { at[_pid] == Runs ->
		if
		:: owner == _pid && state == InProgress && !due ->
			at[_pid] = Checked; printf("%c sees that its lease still stands\n", name(_pid))
		:: else -> leaves(_pid); printf("%c has lost the key\n", name(_pid))
		fi
	}
	:: d_step { at[_pid] == Checked ->
#else
	:: d_step { at[_pid] == Runs ->
#endif
#endif
		at[_pid] = Waits;
		if
		:: !arrived -> flying = flying | bit(_pid)
		:: else
		fi;
		printf("%c calls the provider\n", name(_pid))
	}
	:: d_step { flying & bit(_pid) ->
		flying = flying & ~bit(_pid);
		if
		:: tombs & bit(_pid) ->
			if
			:: at[_pid] == Waits -> at[_pid] = Runs
			:: else
			fi;
			printf("the provider refuses the call of %c\n", name(_pid))
#ifdef KEYED
		:: else -> if
			:: known -> printf("the call of %c reaches the provider, which knows the key\n", name(_pid))
			:: else -> known = true; arrive_all; printf("the call of %c takes effect\n", name(_pid)); happens()
			fi
#else
		:: else -> printf("the call of %c takes effect\n", name(_pid)); happens()
#endif
		fi
	}
#ifdef PROVIDER_FORGETS /* the provider's key lives shorter than ours */
	:: d_step { known ->
		known = false; printf("the provider forgets the key\n")
	}
#endif
#ifdef ACK_FIRST /* the client is answered before the answer is stored */
	:: d_step { at[_pid] == Waits && !(flying & bit(_pid)) ->
		printf("the client of %c gets its answer\n", name(_pid));
		tells(_pid)
	}
#endif
	/* What it has come to is stored, by one swap. */
	:: d_step { at[_pid] == Waits && !(flying & bit(_pid)) && row_free ->
		if
		:: settles(_pid) ->
			printf("%c stores its answer, revision %d\n", name(_pid), next);
			ends(_pid, Completed); answer = _pid; owner = _pid; at[_pid] = Acks
#ifdef SHOWS_LOST /* an attempt that has lost the key sends its own answer all the same */
		:: else ->
			printf("%c has lost the key, and its client gets its answer\n", name(_pid));
			tells(_pid); leaves(_pid)
#else
		:: else -> leaves(_pid); printf("%c has lost the key, and shows nothing\n", name(_pid))
#endif
		fi
	}
	/* Without a reply in time the call may or may not have been made, or be yet. */
	:: d_step { at[_pid] == Waits && row_free ->
		if
		:: settles(_pid) ->
			printf("%c hears nothing from the provider, and makes the key %e, revision %d\n", name(_pid), proven, next);
			ends(_pid, proven)
		:: else -> printf("%c hears nothing from the provider, and has lost the key\n", name(_pid))
		fi;
		leaves(_pid)
	}

#else
	/* The effect and the answer are one transaction. */
	:: d_step { at[_pid] == Runs && !aside && key_free ->
		if
		:: fenced(_pid) && fresh(_pid) && state != Absent ->
			lock = _pid + 1; at[_pid] = Holds;
			printf("%c writes its effect and its answer in a transaction\n", name(_pid))
		:: else -> if
			:: holds(_pid) -> reads(_pid); printf("%c meets its own attempt at another revision, and rolls back\n", name(_pid))
#ifdef IGNORES_REFUSAL /* the refused transaction is not rolled back, and its owner commits it */
			:: else -> leaves(_pid); printf("%c is refused, drops the error and commits its effect\n", name(_pid)); happens()
#else
			:: else -> leaves(_pid); printf("%c has lost the key, and rolls back\n", name(_pid))
#endif
			fi
		fi
	}
	:: d_step { at[_pid] == Holds ->
		at[_pid] = Commits; printf("%c sends the commit\n", name(_pid))
	}
	:: d_step { at[_pid] == Holds ->
		lock = 0; at[_pid] = Runs; printf("the transaction of %c is rolled back\n", name(_pid))
	}

	/* Or the reservation, too: the key is taken in the transaction. */
	:: d_step { begins(_pid) && key_free && (state == Absent || state == Retryable ||
		state == InProgress && may_rerun || (state == InProgress || state == Unknown) && at[owner] == Orphan) ->
		reads(_pid); lock = _pid + 1; at[_pid] = Works;
		printf("%c takes the key in a transaction, and writes its effect there\n", name(_pid))
	}
	:: d_step { at[_pid] == Works ->
		if
		:: fresh(_pid) -> at[_pid] = Commits; printf("%c sends its answer with the commit\n", name(_pid))
		:: else -> lock = 0; leaves(_pid); printf("%c has lost the key, and is rolled back\n", name(_pid))
		fi
	}
	:: d_step { at[_pid] == Works ->
		lock = 0; leaves(_pid); printf("the transaction of %c is rolled back\n", name(_pid))
	}

	/* A commit that was sent takes place, or not, whether or not a caller waits for it. */
	:: d_step { lock == _pid + 1 && (at[_pid] == Commits || at[_pid] == Doubts || at[_pid] == Undone) ->
		printf("the transaction of %c commits, revision %d\n", name(_pid), next);
		if
		:: at[_pid] == Undone -> breaks(4, "S4 is broken: it was said to be rolled back, and is not\n")
		:: else
		fi;
		put(Completed); owner = _pid; answer = _pid; lock = 0; started = false;
		wrote(NoReader);
		if
		:: at[_pid] == Commits -> at[_pid] = Acks
		:: else
		fi;
		happens()
	}
	:: d_step { lock == _pid + 1 && (at[_pid] == Commits || at[_pid] == Doubts || at[_pid] == Undone) ->
		lock = 0;
		if
		:: at[_pid] == Commits -> at[_pid] = Doubts
		:: else
		fi;
		printf("the transaction of %c is rolled back\n", name(_pid))
	}
	:: d_step { at[_pid] == Commits ->
		at[_pid] = Doubts; printf("%c hears nothing of its commit\n", name(_pid))
	}
	/* What became of it is asked by a step that waits for it to end. */
#ifdef READ_AROUND /* or by a read, which does not wait */
	:: d_step { at[_pid] == Doubts ->
#else
	:: d_step { at[_pid] == Doubts && row_free ->
#endif
		if
		:: state == Completed && answer == _pid -> at[_pid] = Acks; printf("%c finds its commit\n", name(_pid))
#ifdef READ_AROUND
		:: else -> at[_pid] = Undone; printf("%c does not find its commit, and says that it is rolled back\n", name(_pid))
#else
		:: else -> if
			:: holds(_pid) ->
				printf("%c finds that it was rolled back, revision %d\n", name(_pid), next);
				ends(_pid, InProgress); at[_pid] = Runs
			:: else -> leaves(_pid); printf("%c finds that it was rolled back\n", name(_pid))
			fi
#endif
		fi
	}
#endif

	/* The answer leaves when it is stored. */
	:: d_step { at[_pid] == Acks ->
		leaves(_pid);
		printf("the client of %c gets its answer\n", name(_pid));
		tells(_pid)
	}
	od
}

/* ---- Sweeper, reconciler, reaper ---- */

active proctype sweeper() {
	bool looks = false;
end:	do
	:: d_step { !looks && state == InProgress ->
		reads(Sweeper); looks = true;
#ifdef LEASE_CHECK
		due = true;
#endif
		printf("the sweeper finds that the lease of %c has run out\n", name(owner))
	}
	:: d_step { looks && !fresh(Sweeper) ->
		looks = false;
#ifdef BLIND_SWEEPER /* it writes what it has read about, whatever is there now */
		printf("the sweeper makes it unknown, revision %d\n", next);
		put(Unknown); wrote(NoReader)
#else
		printf("the sweeper comes too late\n")
#endif
	}
	:: d_step { looks && fresh(Sweeper) && row_free && may_quarantine ->
		printf("the sweeper makes it unknown, revision %d\n", next);
		looks = false; put(Unknown); wrote(NoReader)
	}
	:: d_step { looks && fresh(Sweeper) && row_free && may_rerun ->
		printf("the sweeper lets it run again, revision %d\n", next);
		looks = false; put(Retryable); wrote(NoReader)
	}
#ifndef PLAIN
	:: d_step { looks && fresh(Sweeper) && row_free ->
		printf("the sweeper stores that it failed, revision %d\n", next);
		looks = false; put(Completed); answer = Lapsed; wrote(NoReader)
	}
#endif
	od
}

#define Asks 0
#define Yes  1
#define No   2

/* It asks the provider about what is unknown. The provider of a key that was called
 * with it may not find it yet; without one it finds whatever has happened. */
active proctype reconciler() {
	byte finding = Asks;
end:	do
#ifdef KEYED
	:: d_step { finding == Asks && (state == Unknown || state == Retryable) && effects > 0 ->
#else
	:: d_step { finding == Asks && state == Unknown && effects > 0 ->
#endif
		reads(Reconciler); finding = Yes;
		printf("the reconciler hears from the provider that it has happened\n")
	}
#ifdef KEYED
	:: d_step { finding == Asks && state == Unknown ->
#else
	:: d_step { finding == Asks && state == Unknown && effects == 0 ->
#endif
		reads(Reconciler); finding = No;
#ifdef TOMBSTONE /* it has the provider refuse the attempt from now on */
		tombs = tombs | bit(owner);
		printf("the reconciler hears from the provider that it has not happened, and will be refused\n")
#else
		printf("the reconciler hears from the provider that it knows nothing of it\n")
#endif
	}
	:: d_step { finding != Asks && !fresh(Reconciler) ->
		finding = Asks;
		printf("the reconciler comes too late\n")
	}
	:: d_step { finding == Yes && fresh(Reconciler) && row_free ->
		printf("the reconciler stores an answer, revision %d\n", next);
		finding = Asks; put(Completed); answer = Found; wrote(NoReader)
	}
	:: d_step { finding == No && fresh(Reconciler) && row_free ->
		finding = Asks;
#if defined(UNPROTECTED) && !defined(TOMBSTONE) && !defined(NOT_FOUND_IS_PROOF)
		printf("the reconciler leaves it unknown, revision %d\n", next);
		put(Unknown); wrote(NoReader)
#else
		printf("the reconciler lets it run again, revision %d\n", next);
		put(Retryable); wrote(NoReader)
#endif
	}
	od
}

/* It deletes what is past its retention and final. Answers outlive the search. */
active proctype reaper() {
end:	do
#ifdef REAPS_IN_FLIGHT /* or whatever is old; or the server crashes and forgets it */
	:: d_step { (state == Retryable || state == InProgress) && key_free ->
#else
#if defined(PLAIN) && !defined(FENCE_REPEATS)
	:: d_step { false ->
#else
	:: d_step { state == Retryable && key_free ->
#endif
#endif
		if
		:: at[owner] == Orphan -> at[owner] = Done
		:: else
		fi;
		state = Absent; owner = 0; aside = false; started = false; deleted;
		printf("the key is deleted\n")
	}
	od
}

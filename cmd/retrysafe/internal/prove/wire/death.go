package wire

// A death is how a service that has executed a request leaves it without a clean
// answer.
type death string

// Deaths of a service that speaks HTTP/1.1.
const (
	fin       death = "FIN"           // the connection ends
	rst       death = "RST"           // it is reset
	halfHead  death = "half a head"   // the answer ends in its head
	halfBody  death = "half a body"   // in its body
	halfChunk death = "half a chunk"  // in a chunk of it
	hang      death = "hang"          // there is none, and the connection stays
	farewell  death = "408, then FIN" // what some servers send to connections that they take for idle
)

// Deaths of one that speaks HTTP/2, besides FIN, RST, half a body and hang. After
// some of them a client may take the request for one that was not executed, and they
// lie: this service has executed it.
const (
	resetInternal death = "RST_STREAM INTERNAL_ERROR"
	resetCancel   death = "RST_STREAM CANCEL"
	resetProtocol death = "RST_STREAM PROTOCOL_ERROR"
	resetRefused  death = "RST_STREAM REFUSED_STREAM"
	goneBefore    death = "GOAWAY before it" // names a stream before this one as the last
	goneCalm      death = "GOAWAY ENHANCE_YOUR_CALM"
	goneAfter     death = "GOAWAY, then FIN" // names this one too, and still does not answer it
)

var (
	deaths1 = []death{fin, rst, halfHead, halfBody, halfChunk, farewell, hang}
	deaths2 = []death{fin, rst, halfBody, resetInternal, resetCancel, resetProtocol, resetRefused, goneBefore, goneCalm, goneAfter, hang}
)

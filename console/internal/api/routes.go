package api

import (
	"github.com/retrysafe/retrysafe/console/internal/access"
	"github.com/retrysafe/retrysafe/operator"
)

// routes are all operations of the API. A test compares them with docs/openapi/admin.yaml.
var routes = []route{
	{method: "GET", path: "/whoami", role: access.RoleRead, serve: (*API).whoami},
	{method: "GET", path: "/status", role: access.RoleRead, serve: (*API).status},

	{method: "GET", path: "/keys", role: access.RoleRead, serve: (*API).list},
	{method: "GET", path: "/keys/{ref}", role: access.RoleRead, serve: (*API).show},
	{method: "POST", path: "/keys/{ref}/resolve", role: access.RoleAct, large: true, serve: (*API).resolve},
	{method: "POST", path: "/keys/{ref}/decline", role: access.RoleAct, large: true, serve: (*API).decline},
	{method: "POST", path: "/keys/{ref}/release", role: access.RoleAct, serve: simple((*operator.Service).Release)},
	{method: "POST", path: "/keys/{ref}/redrive", role: access.RoleAct, serve: simple((*operator.Service).Redrive)},
	{method: "POST", path: "/keys/{ref}/forget", role: access.RoleAct, serve: simple((*operator.Service).Forget)},
	{method: "POST", path: "/keys/{ref}/erase", role: access.RoleAct, serve: simple((*operator.Service).Erase)},
	{method: "POST", path: "/keys/{ref}/reveal", role: access.RoleAct, serve: (*API).reveal},
	{method: "GET", path: "/groups", role: access.RoleRead, serve: (*API).groups},
	{method: "GET", path: "/audit", role: access.RoleRead, serve: (*API).audit},

	{method: "POST", path: "/selections", role: access.RoleAct, large: true, serve: (*API).selectBatch},
	{method: "POST", path: "/batches", role: access.RoleAct, large: true, serve: (*API).startBatch},
	{method: "GET", path: "/batches/{id}", role: access.RoleRead, serve: (*API).showJob},
	{method: "GET", path: "/survey", role: access.RoleRead, serve: (*API).survey},
	{method: "POST", path: "/quarantines", role: access.RoleAct, serve: (*API).startQuarantine},
	{method: "GET", path: "/quarantines/{id}", role: access.RoleRead, serve: (*API).showJob},
	{method: "POST", path: "/reconcile", role: access.RoleAct, serve: (*API).reconcile},

	{method: "GET", path: "/outbox/depth", role: access.RoleRead, serve: (*API).depth},
	{method: "GET", path: "/outbox/messages", role: access.RoleRead, serve: (*API).messages},
	{method: "GET", path: "/outbox/messages/{id}", role: access.RoleRead, serve: (*API).message},
	{method: "POST", path: "/outbox/messages/{id}/redrive", role: access.RoleAct, serve: letter((*operator.DeadLetters).Redrive)},
	{method: "POST", path: "/outbox/messages/{id}/drop", role: access.RoleAct, serve: letter((*operator.DeadLetters).Drop)},
	{method: "POST", path: "/outbox/messages/{id}/skip", role: access.RoleAct, serve: letter((*operator.DeadLetters).Skip)},
	{method: "POST", path: "/outbox/messages/{id}/reveal", role: access.RoleAct, serve: (*API).revealMessage},
	{method: "GET", path: "/outbox/receipts", role: access.RoleRead, serve: (*API).receipts},
}

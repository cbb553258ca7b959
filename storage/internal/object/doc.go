// Package object is a level's view of an object store: buckets, their objects, and errors. Package s3, which programs
// import, reaches them.
//
// # Promises asked of a store
//
// It is strongly consistent: after a reply that an object is there, or gone, every client finds it so. An object
// appears whole or not at all. A put or the end of a multipart upload with If-None-Match: * succeeds only if there is
// no object of that name, one with If-Match only if the object is the one meant; Bucket.Try finds out.
//
// # Requests that get lost
//
// A reply may be lost although the store has carried out the request, and a request that was given up may still be done
// later. So nothing is put without a condition: a late or repeated request finds that its condition no longer holds.
// Every object carries a token of the put that made it, by which that put recognises its own work. The store refuses a
// request from 15 minutes after its signature on.
package object

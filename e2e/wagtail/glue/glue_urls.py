# Glue: the template has no page that streams. This one sends its second part when it is told to, so that a test can
# see that the first has arrived by then; whoever is never told ends after a while.
import threading
from collections import defaultdict

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from example.urls import urlpatterns as template

LONGEST_WAIT_SECONDS = 30
told = defaultdict(threading.Event)


@csrf_exempt
def stream(request, name):
    if request.method == "POST":
        told[name].set()
        return HttpResponse(status=204)

    def parts():
        yield "the first part\n"
        if told[name].wait(LONGEST_WAIT_SECONDS):
            yield "the second part\n"

    return StreamingHttpResponse(parts(), content_type="text/plain")


urlpatterns = [path("stream/<slug:name>/", stream), *template]
